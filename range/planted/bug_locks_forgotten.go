//go:build planted && planted_locks_forgotten

package planted

const active = LocksForgotten
