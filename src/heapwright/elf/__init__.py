"""ELF files: what heapwright reads of them, and the note that it leaves in the programs it links."""
