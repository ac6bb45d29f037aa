//go:build planted && planted_lease_on_wall_clock

package planted

const active = LeaseOnWallClock
