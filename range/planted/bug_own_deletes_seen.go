//go:build planted && planted_own_deletes_seen

package planted

const active = OwnDeletesSeen
