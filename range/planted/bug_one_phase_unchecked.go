//go:build planted && planted_one_phase_unchecked

package planted

const active = OnePhaseUnchecked
