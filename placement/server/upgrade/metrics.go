package upgrade

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Collectors returns the metrics of the cluster's level. On a member that does not lead the core
// all of them are 0.
func (u *Upgrade) Collectors() []prometheus.Collector {
	gauge := func(name, help string, value func(Record, []server) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidemark_upgrade_" + name,
			Help: help + "; 0 unless this member leads the core."}, func() float64 {
			return u.measured(value)
		})
	}
	return []prometheus.Collector{
		gauge("cluster_level", "The active level of formats and messages of the cluster",
			func(r Record, _ []server) float64 { return float64(r.active()) }),
		gauge("target_level", "The level to which the cluster could be raised next, which is the active "+
			"level if no server supports a higher one", func(r Record, servers []server) float64 {
			return float64(r.target(servers))
		}),
		gauge("servers_behind", "Servers that keep an upgrade from being finalised",
			func(r Record, servers []server) float64 {
				_, obstacles := r.assess(servers)
				return float64(obstacles)
			}),
		gauge("ready_timestamp_seconds", "Since when every server has supported a level above the "+
			"active one, in seconds since the Unix epoch; 0: not every server does, or there is none",
			func(r Record, servers []server) float64 {
				if release.Level(r.GetReadyLevel()) <= r.active() {
					return 0
				}
				return float64(r.GetReadySinceUnixMs()) / 1000
			}),
	}
}

// measured computes a metric from this member's data. It returns 0 if this member does not lead.
func (u *Upgrade) measured(value func(Record, []server) float64) float64 {
	if l, _ := u.config.Store.Leadership(); !l.Serving {
		return 0
	}
	v := u.config.Store.Stale()
	record, err := Load(v)
	if err != nil {
		return 0
	}
	servers, err := u.servers(v)
	if err != nil {
		return 0
	}
	return value(record, servers)
}
