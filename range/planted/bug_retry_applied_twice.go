//go:build planted && planted_retry_applied_twice

package planted

const active = RetryAppliedTwice
