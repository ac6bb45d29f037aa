//go:build planted && planted_refresh_not_recorded

package planted

const active = RefreshNotRecorded
