package main

import (
	"fmt"
	"slices"
	"strings"
)

// results has all figures, by case and subject.
type results struct {
	cases   []string
	figures map[string]map[string][]figure
}

func (r *results) add(name, subject string, f figure) {
	if r.figures == nil {
		r.figures = map[string]map[string][]figure{}
	}
	if r.figures[name] == nil {
		r.figures[name] = map[string][]figure{}
		r.cases = append(r.cases, name)
	}
	r.figures[name][subject] = append(r.figures[name][subject], f)
}

// table returns a Markdown table with medians over the repetitions.
func (r *results) table() string {
	var b strings.Builder
	b.WriteString("| case | subject | per second | p50 | p99 | CPU s | per CPU s | " +
		"client CPU s | MiB |\n")
	b.WriteString("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, name := range r.cases {
		for _, subject := range []string{"etcd", "tidemark", directName, ceilingName} {
			all := r.figures[name][subject]
			median := func(of func(figure) float64) float64 {
				var v []float64
				for _, f := range all {
					v = append(v, of(f))
				}
				slices.Sort(v)
				return v[len(v)/2]
			}
			if len(all) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %.0f | %.2f ms | %.2f ms | %.1f | %.0f | %.1f | %.0f |\n",
				name, subject,
				median(func(f figure) float64 { return f.perSecond }),
				median(func(f figure) float64 { return f.p50.Seconds() * 1000 }),
				median(func(f figure) float64 { return f.p99.Seconds() * 1000 }),
				median(func(f figure) float64 { return f.cpuSeconds }),
				median(func(f figure) float64 { return f.perCPUSecond }),
				median(func(f figure) float64 { return f.clientCPUSeconds }),
				median(func(f figure) float64 { return f.residentMiB }))
		}
	}
	return b.String()
}
