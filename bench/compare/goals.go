package main

import "slices"

// goal is a goal of the project for one ratio: Tidemark's figure divided by etcd's.
type goal struct {
	// Load and Figure name what is compared.
	Load   string
	Figure string
	value  func(summary) float64
	// AtLeast and AtMost: exactly one is set.
	AtLeast, AtMost float64
	// Partitions are the keyspaces that the goal is for. Other keyspaces are shown without a verdict.
	Partitions []int
	// Ordered is set if the goal is for keyspaces partitioned by range.
	Ordered bool
}

var (
	everyPartitions = []int{1, 8, 64}
	rangePartitions = []int{8, 64}
)

var goals = []goal{
	{Load: putMany, Figure: "throughput", value: throughput, AtLeast: 2.0, Partitions: []int{8}},
	{Load: putMany, Figure: "server CPU per 1,000", value: serverCPU, AtMost: 0.5,
		Partitions: []int{8}},
	{Load: putMany, Figure: "throughput", value: throughput, AtLeast: 1.0, Partitions: []int{64}},
	{Load: getMany, Figure: "throughput", value: throughput, AtLeast: 2.0,
		Partitions: everyPartitions},
	{Load: putOne, Figure: "median latency", value: median, AtMost: 0.8, Partitions: everyPartitions},
	{Load: getOne, Figure: "median latency", value: median, AtMost: 0.6, Partitions: everyPartitions},
	{Load: scanMany, Figure: "throughput", value: throughput, AtLeast: 10,
		Partitions: rangePartitions, Ordered: true},
	{Load: scanMany, Figure: "throughput", value: throughput, AtLeast: 10,
		Partitions: everyPartitions},
}

func throughput(s summary) float64 { return s.Throughput.Median }
func serverCPU(s summary) float64  { return s.ServerCPU.Median }
func median(s summary) float64     { return s.P50.Median }

// verdict is the result of a goal for one keyspace.
type verdict struct {
	Load       string  `json:"load"`
	Figure     string  `json:"figure"`
	Partitions int     `json:"partitions"`
	Ordered    bool    `json:"ordered,omitempty"`
	Etcd       float64 `json:"etcd"`
	Tidemark   float64 `json:"tidemark"`
	Ratio      float64 `json:"ratio"`
	AtLeast    float64 `json:"at_least,omitempty"`
	AtMost     float64 `json:"at_most,omitempty"`
	Met        bool    `json:"met"`
}

// judge compares the summaries. A figure that was not measured on both sides has no verdict.
func judge(summaries []summary) []verdict {
	find := func(load, subject string) (summary, bool) {
		i := slices.IndexFunc(summaries, func(s summary) bool {
			return s.Load == load && s.Subject == subject
		})
		if i < 0 {
			return summary{}, false
		}
		return summaries[i], true
	}
	var verdicts []verdict
	for _, g := range goals {
		etcd, ok := find(g.Load, etcdName)
		if !ok || g.value(etcd) == 0 {
			continue
		}
		for _, partitions := range g.Partitions {
			name := tidemarkName(partitions)
			if g.Ordered {
				name = rangeName(partitions)
			}
			tidemark, ok := find(g.Load, name)
			if !ok {
				continue
			}
			v := verdict{
				Load: g.Load, Figure: g.Figure, Partitions: partitions, Ordered: g.Ordered,
				Etcd: g.value(etcd), Tidemark: g.value(tidemark), Ratio: g.value(tidemark) / g.value(etcd),
				AtLeast: g.AtLeast, AtMost: g.AtMost,
			}
			// A store that answers with errors has met no goal. The median of no successes would be 0, which
			// would look like an excellent latency.
			usable := tidemark.Throughput.Low > 0 && tidemark.Errors == 0
			if g.AtLeast > 0 {
				v.Met = usable && v.Ratio >= g.AtLeast
			} else {
				v.Met = usable && v.Ratio <= g.AtMost
			}
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}
