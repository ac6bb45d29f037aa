//go:build planted && planted_refresh_skipped

package planted

const active = RefreshSkipped
