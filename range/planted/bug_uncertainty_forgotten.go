//go:build planted && planted_uncertainty_forgotten

package planted

const active = UncertaintyForgotten
