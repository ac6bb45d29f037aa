//go:build planted && planted_age_lost

package planted

const active = AgeLost
