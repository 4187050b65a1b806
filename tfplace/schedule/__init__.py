"""List scheduling on flat arrays: the kernels that several placers share."""
