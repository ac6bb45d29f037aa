//go:build planted && planted_commit_below_prepare

package planted

const active = CommitBelowPrepare
