//go:build planted && planted_applied_outside_batch

package planted

const active = AppliedOutsideBatch
