//go:build planted && planted_truncate_above_durable

package planted

const active = TruncateAboveDurable
