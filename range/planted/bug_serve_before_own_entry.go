//go:build planted && planted_serve_before_own_entry

package planted

const active = ServeBeforeOwnEntry
