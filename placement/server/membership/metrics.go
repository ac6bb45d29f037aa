package membership

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Collectors returns the metrics of the core's members. On a member that does not lead the core all
// of them are 0, except members_version_unknown.
func (s *Membership) Collectors() []prometheus.Collector {
	// For this metric each member reports what it has heard itself, whether it leads or not.
	all := []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_core_members_version_unknown",
		Help: "Members of the core whose versions are not known to this member, because they have " +
			"not answered since it was started. Until they answer, no NOSPACE alarm is raised.",
	}, func() float64 {
		unheard, _ := s.versions.Unknowing()
		return float64(len(unheard))
	})}
	gauge := func(name, help string, value func() float64) {
		all = append(all, prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "tidemark_core_" + name, Help: help}, func() float64 {
				if l, _ := s.store.Leadership(); !l.Serving {
					return 0
				}
				return value()
			}))
	}
	count := func(is func(clusterpb.ReplicaRole) bool) func() float64 {
		return func() (n float64) {
			for _, x := range s.meta.Members() {
				if is(x.Role) {
					n++
				}
			}
			return n
		}
	}
	gauge("members", "Members of the core: voters, learners, and those that are going.",
		count(func(clusterpb.ReplicaRole) bool { return true }))
	gauge("voters", "Members of the core that vote when what is under way is done.",
		count(func(r clusterpb.ReplicaRole) bool {
			return r == clusterpb.ReplicaRole_VOTER || r == clusterpb.ReplicaRole_INCOMING
		}))
	gauge("learners", "Members of the core that do not vote yet.",
		count(func(r clusterpb.ReplicaRole) bool { return r == clusterpb.ReplicaRole_LEARNER }))
	gauge("members_silent", "Members of the core of which the leader has heard nothing for an election "+
		"timeout.", func() (n float64) {
		for _, x := range s.meta.Members() {
			if s.config.Peers.Down(x.Replica) {
				n++
			}
		}
		return n
	})
	changing := func(value func(created time.Time) float64) func() float64 {
		return func() float64 {
			g, _, err := loadGoal(s.store.Stale())
			if g == nil || err != nil {
				return 0
			}
			return value(time.UnixMilli(g.CreatedUnixMs))
		}
	}
	gauge("membership_changes", "Changes of the core's members that are under way: 0 or 1.",
		changing(func(time.Time) float64 { return 1 }))
	gauge("membership_change_age_seconds",
		"For how long the present change of the core's members has been under way.",
		changing(func(created time.Time) float64 { return max(0, time.Since(created).Seconds()) }))
	gauge("membership_change_step_age_seconds",
		"For how long the present change of the core's members has been at its present step.",
		changing(func(time.Time) float64 { return s.core.stepAge().Seconds() }))
	return all
}
