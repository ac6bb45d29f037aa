package prom_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
)

// shown is what a scrape shows, one line for each value.
func shown(t *testing.T, from prometheus.Gatherer) (lines []string) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			line := f.GetName() + " " + f.GetType().String()
			for _, l := range m.GetLabel() {
				line += " " + l.GetName() + "=" + l.GetValue()
			}
			lines = append(lines, fmt.Sprintf("%s %v",
				line, m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
	}
	return lines
}

// Prometheus shows counters, gauges and what is parted by a label, with the labels of the
// registerer; a second collector of the same name is told of the first, and what is taken out is
// not shown.
func TestPrometheusShowsMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := prom.Registry(prometheus.WrapRegistererWith(prometheus.Labels{"part": "p"}, registry))
	count := metric.NewCounter("a_total", "A.", map[string]string{"realm": "r"})
	level := metric.NewGauge("b", "B.", nil)
	parted := metric.NewVec("c_total", "C.", "class")
	for _, c := range []metric.Collector{count, level, parted} {
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	var adding sync.WaitGroup
	for range 4 {
		adding.Go(func() {
			for range 100 {
				count.Inc()
				count.Add(0.25)
				level.Inc()
				level.Dec()
				parted.With("x").Add(2)
			}
		})
	}
	adding.Wait()
	level.Inc()
	parted.With("y").Inc()
	want := []string{
		"a_total COUNTER part=p realm=r 500",
		"b GAUGE part=p 1",
		"c_total COUNTER class=x part=p 800",
		"c_total COUNTER class=y part=p 1",
	}
	if got := shown(t, registry); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	var there *metric.RegisteredError
	again := metric.NewCounter("a_total", "A.", map[string]string{"realm": "r"})
	if err := r.Register(again); !errors.As(err, &there) || there.Existing != count {
		t.Errorf("%v", err)
	}
	r.Unregister(count)
	if got := shown(t, registry); !slices.Equal(got, want[1:]) {
		t.Errorf("%q", got)
	}
}
