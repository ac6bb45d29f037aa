//go:build planted && planted_wait_for_latest

package planted

const active = WaitForLatest
