"""The hypervisor drivers, and the roles they may play."""
