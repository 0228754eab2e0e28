"""The workflows: one file each, with its state, its steps and its list. ``registry`` names them all."""
