"""Where tasks run: in this process, or in processes of this machine."""
