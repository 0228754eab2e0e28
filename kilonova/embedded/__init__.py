"""The neighbours of the one-command mode: the real identity, image, placement, network and volume services as children."""
