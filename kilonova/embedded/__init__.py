"""The neighbours of the one-command mode: real identity, image, placement, network, volume services as children."""
