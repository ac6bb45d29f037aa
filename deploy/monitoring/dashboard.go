package monitoring

import (
	"fmt"
	"maps"
)

// Dashboard is a page of Grafana.
type Dashboard struct {
	// Name names its file, and is its uid after "tidemark-".
	Name, Title, Description string
	// ByInstance: it has a variable for the servers that are shown.
	ByInstance bool
	Rows       []Row
}

// Row is panels below a heading.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel is a chart, or a number.
type Panel struct {
	Title string
	// Description says what is good and what is not; Grafana shows it beside the title.
	Description string
	// Unit is one of Grafana's: s, bytes, Bps, reqps, ops, percentunit, short.
	Unit string
	// Width is of 24 columns; 0 is 8 for a chart and 4 for a number.
	Width int
	// Number shows the last value instead of a chart. With Alarm it is red from 1 on.
	Number, Alarm bool
	Queries       []Query
	// Empty says why a query of the panel has no result on a cluster on which all is well; "" if all
	// have.
	Empty string
}

// Query is an expression and the name of its lines. The dashboard adds matchers for its variables
// to each metric.
type Query struct{ Expr, Legend string }

// Dashboards are all dashboards.
var Dashboards = []Dashboard{overview, nodes, partitions, transactions}

// matcher is what is added to each metric of the dashboard.
func (d Dashboard) matcher() string {
	if d.ByInstance {
		return `job="$job",instance=~"$instance"`
	}
	return `job="$job"`
}

// Expr is a query as it stands in the dashboard.
func (d Dashboard) Expr(q Query) string { return selected(q.Expr, d.matcher()) }

// perServer is the legend of a line for each server.
const perServer = "{{instance}} {{server}}"

// alarm is a number that has to be 0.
func alarm(title, description, expr string) Panel {
	return Panel{Title: title, Description: description, Unit: "short", Number: true, Alarm: true,
		Queries: []Query{{expr, ""}}}
}

// number is a number.
func number(title, unit, expr string) Panel {
	return Panel{Title: title, Unit: unit, Number: true, Queries: []Query{{expr, ""}}}
}

// chart is a chart of one query.
func chart(title, unit, description, expr, legend string) Panel {
	return Panel{Title: title, Unit: unit, Description: description, Queries: []Query{{expr, legend}}}
}

// quantiles is a chart of the median and the slowest hundredth of a histogram of all servers.
func quantiles(title, description, histogram, matchers string) Panel {
	p := Panel{Title: title, Unit: "s", Description: description}
	for _, q := range []struct{ quantile, legend string }{{"0.5", "p50"}, {"0.99", "p99"}} {
		p.Queries = append(p.Queries, Query{fmt.Sprintf(
			"histogram_quantile(%s, sum by (le) (rate(%s_bucket%s[$__rate_interval])))",
			q.quantile, histogram, matchers), q.legend})
	}
	return p
}

// slowest is a chart of the slowest hundredth of a histogram for each server.
func slowest(title, description, histogram, matchers string) Panel {
	return chart(title, "s", description, fmt.Sprintf("histogram_quantile(0.99, "+
		"sum by (instance, server, le) (rate(%s_bucket%s[$__rate_interval])))",
		histogram, matchers), perServer)
}

// mean is a chart of the mean of a histogram for each server.
func mean(title, unit, description, histogram, matchers string) Panel {
	return chart(title, unit, description, fmt.Sprintf(
		"sum by (instance, server) (rate(%s_sum%s[$__rate_interval]))\n"+
			"/ sum by (instance, server) (rate(%s_count%s[$__rate_interval]))",
		histogram, matchers, histogram, matchers), perServer)
}

// rate is a chart of how fast a counter grows, for each server.
func rate(title, unit, description, counter string) Panel {
	return chart(title, unit, description,
		"sum by (instance, server) (rate("+counter+"[$__rate_interval]))", perServer)
}

// rateBy is a chart of how fast a counter grows on all servers, by a label.
func rateBy(label, title, unit, description, counter string) Panel {
	return chart(title, unit, description,
		"sum by ("+label+") (rate("+counter+"[$__rate_interval]))", "{{"+label+"}}")
}

// level is a chart of a gauge, for each server.
func level(title, unit, description, gauge string) Panel {
	return chart(title, unit, description, "sum by (instance, server) ("+gauge+")", perServer)
}

// Files are the generated files: what is in them, by their path below this folder.
func Files() map[string][]byte {
	files := map[string][]byte{"rules/tidemark.rules.yaml": rules()}
	maps.Copy(files, dashboards())
	return files
}
