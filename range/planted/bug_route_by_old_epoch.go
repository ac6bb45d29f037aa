//go:build planted && planted_route_by_old_epoch

package planted

const active = RouteByOldEpoch
