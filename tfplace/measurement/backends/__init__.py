"""Where measured steps run: in this process, or on a cluster of workers."""
