//go:build planted && planted_one_phase_over_lock

package planted

const active = OnePhaseOverLock
