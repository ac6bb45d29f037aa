//go:build planted && planted_aborted_after_commit

package planted

const active = AbortedAfterCommit
