"""From ops and devices to seconds: OpGraph x Topology -> CostTable."""
