"""What a guest may read about itself: the OpenStack and EC2 trees."""
