//go:build planted && planted_ack_before_sync

package planted

const active = AckBeforeSync
