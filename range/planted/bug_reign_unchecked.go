//go:build planted && planted_reign_unchecked

package planted

const active = ReignUnchecked
