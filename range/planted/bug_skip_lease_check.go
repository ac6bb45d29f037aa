//go:build planted && planted_skip_lease_check

package planted

const active = SkipLeaseCheck
