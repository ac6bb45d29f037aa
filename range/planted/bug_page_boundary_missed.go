//go:build planted && planted_page_boundary_missed

package planted

const active = PageBoundaryMissed
