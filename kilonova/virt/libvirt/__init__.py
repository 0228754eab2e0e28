"""Real guests: QEMU through libvirt, with KVM where it works and TCG elsewhere."""
