package node

import (
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
)

// eager is a registry that is asked whenever something is registered.
type eager struct {
	*prometheus.Registry
	t *testing.T
}

// Register implements prometheus.Registerer.
func (e eager) Register(c prometheus.Collector) error {
	if err := e.Registry.Register(c); err != nil {
		return err
	}
	if _, err := e.Gather(); err != nil {
		e.t.Error(err)
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (e eager) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := e.Register(c); err != nil {
			panic(err)
		}
	}
}

// TestMetricsAtAnyMoment: metrics can be asked while a node is being made. What they ask is there
// as soon as they are shown.
func TestMetricsAtAnyMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, func(config *Config) {
			config.Registerer = eager{prometheus.NewRegistry(), t}
		})
		p := c.createHash(1, 1)[0]
		c.mustPut(p, "k", "v")
	})
}
