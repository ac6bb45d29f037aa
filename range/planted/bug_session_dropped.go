//go:build planted && planted_session_dropped

package planted

const active = SessionDropped
