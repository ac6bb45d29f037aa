package main

import (
	"slices"
	"time"
)

// spread is a median over the repetitions, with the lowest and the highest value.
type spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// spreadOf needs at least one value.
func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return spread{Median: median, Low: sorted[0], High: sorted[len(sorted)-1]}
}

// summary is one subject under one load over all repetitions. Latencies are in microseconds.
type summary struct {
	Subject    string  `json:"subject"`
	Load       string  `json:"load"`
	Throughput spread  `json:"throughput"`
	P50        spread  `json:"p50_us"`
	P95        spread  `json:"p95_us"`
	P99        spread  `json:"p99_us"`
	Max        float64 `json:"max_us"`
	ServerCPU  spread  `json:"server_cpu_seconds_per_1000"`
	ClientCPU  spread  `json:"client_cpu_seconds_per_1000"`
	Memory     spread  `json:"server_memory_bytes"`
	Errors     uint64  `json:"errors"`
	// Example is one of the errors, if there were any.
	Example string `json:"example,omitempty"`
}

// summarise groups the measurements by load and subject, in the order of their first occurrence.
func summarise(measurements []*measurement) []summary {
	type group struct{ load, subject string }
	var order []group
	members := make(map[group][]*measurement)
	for _, m := range measurements {
		g := group{m.Load, m.Subject}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], m)
	}
	var summaries []summary
	for _, l := range loads {
		for _, g := range order {
			if g.load == l.Name {
				summaries = append(summaries, summariseOne(members[g]))
			}
		}
	}
	return summaries
}

func summariseOne(measurements []*measurement) summary {
	values := func(value func(*measurement) float64) spread {
		var all []float64
		for _, m := range measurements {
			all = append(all, value(m))
		}
		return spreadOf(all)
	}
	s := summary{
		Subject:    measurements[0].Subject,
		Load:       measurements[0].Load,
		Throughput: values(func(m *measurement) float64 { return m.Result.Total.Throughput }),
		P50:        values(func(m *measurement) float64 { return float64(m.Result.Total.P50) }),
		P95:        values(func(m *measurement) float64 { return float64(m.Result.Total.P95) }),
		P99:        values(func(m *measurement) float64 { return float64(m.Result.Total.P99) }),
		ServerCPU:  values(func(m *measurement) float64 { return m.ServerCPU }),
		ClientCPU:  values(func(m *measurement) float64 { return m.ClientCPU }),
		Memory:     values(func(m *measurement) float64 { return float64(m.ServerMemory) }),
	}
	for _, m := range measurements {
		s.Max = max(s.Max, float64(m.Result.Total.Max))
		s.Errors += m.Result.Total.Errors
		if len(m.Result.Total.Failures) > 0 && s.Example == "" {
			s.Example = m.Result.Total.Failures[0].Example
		}
	}
	return s
}

// limitSummary is one limit of the machine over all repetitions.
type limitSummary struct {
	Name       string `json:"name"`
	Callers    int    `json:"callers"`
	Throughput spread `json:"throughput"`
	// P50 and P99 are in microseconds.
	P50 spread `json:"p50_us"`
	P99 spread `json:"p99_us"`
	CPU spread `json:"cpu_seconds_per_1000"`
}

// summariseLimits summarises the limits of all repetitions. Each repetition has the same limits in
// the same order.
func summariseLimits(repetitions [][]limit) []limitSummary {
	if len(repetitions) == 0 {
		return nil
	}
	var summaries []limitSummary
	for i, first := range repetitions[0] {
		values := func(value func(limit) float64) spread {
			var all []float64
			for _, limits := range repetitions {
				all = append(all, value(limits[i]))
			}
			return spreadOf(all)
		}
		summaries = append(summaries, limitSummary{
			Name:       first.Name,
			Callers:    first.Callers,
			Throughput: values(func(l limit) float64 { return l.Throughput }),
			P50:        values(func(l limit) float64 { return micros(l.P50) }),
			P99:        values(func(l limit) float64 { return micros(l.P99) }),
			CPU:        values(func(l limit) float64 { return l.CPUPerThousand }),
		})
	}
	return summaries
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
