"""The domain, pure: servers, flavors, images, devices, requests and quotas, without any I/O."""
