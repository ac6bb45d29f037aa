package kvtest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/admin/doctor"
	"github.com/tidemarkdb/tidemark/kv/admin/health"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// namedWithin is how long a slow server may go unnamed.
const namedWithin = 30 * time.Second

// slowCluster is a cluster of three servers under load, one of which is to become slow.
type slowCluster struct {
	*kvtest.Cluster
	t      *testing.T
	client *kv.Client
	ks     *kv.Keyspace
}

func newSlowCluster(t *testing.T) *slowCluster {
	c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Latency: latency})
	for i := range c.Servers() {
		c.Disk(i).SetSyncTimes(fastSync, fastSync)
	}
	s := &slowCluster{Cluster: c, t: t, client: c.Client(t)}
	s.ks = create(t, s.client, "things", kv.Hash(12))
	writeFor(t, s.ks, 12*time.Second)
	return s
}

// named says whether the doctor, and status, name the third server and a cause.
func (s *slowCluster) named(area, cause string) (byDoctor, byStatus bool) {
	s.t.Helper()
	cluster := admin.New(s.client)
	facts, err := doctor.Gather(s.t.Context(), cluster)
	if err != nil {
		s.t.Fatal(err)
	}
	address := s.Endpoints()[2]
	for _, check := range doctor.Judge(facts) {
		for _, f := range check.Findings {
			text := strings.Join(f.Subjects, " ") + " " + f.What
			if check.Area == area && strings.Contains(text, address) && strings.Contains(text, cause) {
				byDoctor = true
			}
		}
	}
	found, _ := health.Judge(facts.Nodes, facts.Partitions, facts.Core)
	for _, text := range found.Unhealthy.Lines() {
		if strings.Contains(text, cause) {
			byStatus = byStatus || strings.Contains(text, address)
			if !strings.Contains(text, address) {
				s.t.Errorf("another server is named: %s", text)
			}
		}
	}
	return byDoctor, byStatus
}

// becomesSlow has the third server become slow, and well again, and wants it named meanwhile, and
// neither before nor after.
func (s *slowCluster) becomesSlow(area, cause string, slow, well func()) {
	s.t.Helper()
	if byDoctor, byStatus := s.named(area, cause); byDoctor || byStatus {
		s.t.Errorf("%s: it is named in calm (doctor %v, status %v)", cause, byDoctor, byStatus)
	}
	slow()
	writeFor(s.t, s.ks, namedWithin)
	if byDoctor, byStatus := s.named(area, cause); !byDoctor || !byStatus {
		s.t.Errorf("%s: it is named by the doctor: %v, by status: %v", cause, byDoctor, byStatus)
	}
	well()
	writeFor(s.t, s.ks, 40*time.Second)
	if byDoctor, byStatus := s.named(area, cause); byDoctor || byStatus {
		s.t.Errorf("%s: it is named when it is well (doctor %v, status %v)", cause, byDoctor, byStatus)
	}
}

// A server whose network or disk is slow is named, with the cause, within half a minute.
func TestSlowServerIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSlowCluster(t)
		far := func(d time.Duration) func() {
			return func() {
				for other := range 2 {
					s.Network().SetLatency(s.Host(2), s.Host(other), d)
					s.Network().SetLatency(s.Host(other), s.Host(2), d)
				}
			}
		}
		s.becomesSlow("network", "network is slow", far(30*time.Millisecond), far(latency))
		s.becomesSlow("disks", "disk is slow",
			func() { s.Disk(2).SetSyncTimes(slowSync, slowSync) },
			func() { s.Disk(2).SetSyncTimes(fastSync, fastSync) })
	})
}
