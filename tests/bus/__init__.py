"""What every bus must do, on the one inside a process and on RabbitMQ."""
