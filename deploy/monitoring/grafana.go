package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// object is a JSON object. encoding/json writes its keys in order.
type object = map[string]any

// schemaVersion is Grafana's version of the format: that of Grafana 10.
const schemaVersion = 38

// datasource is the Prometheus that the variable of each dashboard chooses.
var datasource = object{"type": "prometheus", "uid": "${datasource}"}

// dashboards are the files of all dashboards.
func dashboards() map[string][]byte {
	files := make(map[string][]byte)
	for _, d := range Dashboards {
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(d.grafana()); err != nil {
			panic(err) // maps, slices, strings, numbers
		}
		files["dashboards/tidemark-"+d.Name+".json"] = b.Bytes()
	}
	return files
}

// grafana is the dashboard in Grafana's format.
func (d Dashboard) grafana() object {
	return object{
		"uid":           "tidemark-" + d.Name,
		"title":         d.Title,
		"description":   d.Description,
		"tags":          []string{"tidemark"},
		"schemaVersion": schemaVersion,
		"editable":      true,
		"refresh":       "30s",
		"time":          object{"from": "now-1h", "to": "now"},
		"timezone":      "browser",
		"graphTooltip":  1, // the crosshair is shared
		"links": []object{{"type": "dashboards", "title": "Tidemark", "tags": []string{"tidemark"},
			"asDropdown": true, "includeVars": true, "keepTime": true}},
		"templating": object{"list": d.variables()},
		"panels":     d.panels(),
	}
}

func (d Dashboard) variables() []object {
	variable := func(name, label, query string, several bool) object {
		v := object{"type": "query", "name": name, "label": label, "datasource": datasource,
			"query": query, "definition": query, "refresh": 2, "sort": 1}
		if several {
			v["multi"], v["includeAll"], v["allValue"] = true, true, ".*"
			v["current"] = object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}
		}
		return v
	}
	list := []object{
		{"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus",
			"refresh": 1},
		variable("job", "Cluster", "label_values(tidemark_build_info, job)", false),
	}
	if d.ByInstance {
		list = append(list, variable("instance", "Server",
			`label_values(tidemark_build_info{job="$job"}, instance)`, true))
	}
	return list
}

// A dashboard is so many columns wide, and a chart or a number so many rows high.
const (
	gridColumns              = 24
	chartHeight, chartWidth  = 7, 8
	numberHeight, numberWith = 4, 4
)

// panels places the panels of each row from left to right, as many as fit, below its heading.
func (d Dashboard) panels() []object {
	var all []object
	y := 0
	add := func(panel object, x, width, height int) {
		panel["id"] = len(all) + 1
		panel["gridPos"] = object{"x": x, "y": y, "w": width, "h": height}
		all = append(all, panel)
	}
	for _, r := range d.Rows {
		add(object{"type": "row", "title": r.Title, "collapsed": false, "panels": []object{}},
			0, gridColumns, 1)
		y++
		x, highest := 0, 0
		for _, p := range r.Panels {
			width, height := p.size()
			if x+width > gridColumns {
				x, y, highest = 0, y+highest, 0
			}
			add(d.panel(p), x, width, height)
			x, highest = x+width, max(highest, height)
		}
		y += highest
	}
	return all
}

func (p Panel) size() (width, height int) {
	width, height = chartWidth, chartHeight
	if p.Number {
		width, height = numberWith, numberHeight
	}
	if p.Width > 0 {
		width = p.Width
	}
	return width, height
}

func (d Dashboard) panel(p Panel) object {
	targets := make([]object, 0, len(p.Queries))
	for i, q := range p.Queries {
		target := object{"refId": string(rune('A' + i)), "datasource": datasource,
			"expr": d.Expr(q), "legendFormat": q.Legend}
		if p.Number {
			target["instant"] = true
		}
		targets = append(targets, target)
	}
	defaults := object{"unit": p.Unit}
	out := object{"title": p.Title, "datasource": datasource, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}}}
	if p.Description != "" {
		out["description"] = p.Description
	}
	if !p.Number {
		defaults["custom"] = object{"fillOpacity": 5, "showPoints": "never"}
		if !strings.Contains(p.Title, "Offset") {
			defaults["min"] = 0
		}
		out["type"] = "timeseries"
		out["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"},
			"tooltip": object{"mode": "multi", "sort": "desc"}}
		return out
	}
	steps := []object{{"color": "green", "value": nil}}
	if p.Alarm {
		steps = append(steps, object{"color": "red", "value": 1})
	}
	defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
	out["type"] = "stat"
	out["options"] = object{"colorMode": "value", "graphMode": "none",
		"reduceOptions": object{"calcs": []string{"lastNotNull"}}}
	return out
}

// Question is a query of a panel, for callers that ask it elsewhere than in Grafana.
type Question struct {
	// Panel names the dashboard, the panel and the query.
	Panel, Expr string
	// Empty is Panel.Empty.
	Empty string
}

// Questions are all queries of all panels. value gives what stands for a variable of Grafana.
func Questions(value func(variable string) string) []Question {
	var all []Question
	for _, d := range Dashboards {
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				for i, q := range p.Queries {
					expr := d.Expr(q)
					for _, v := range []string{"job", "instance", "__rate_interval"} {
						expr = strings.ReplaceAll(expr, "$"+v, value(v))
					}
					all = append(all, Question{fmt.Sprintf("%s: %s (%c)", d.Title, p.Title, 'A'+i),
						expr, p.Empty})
				}
			}
		}
	}
	return all
}
