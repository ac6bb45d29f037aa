package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/monitoring"
)

func main() {
	address := flag.String("prometheus", "http://127.0.0.1:9090", "the address of Prometheus")
	job := flag.String("job", "tidemark", "the scrape job of the cluster")
	interval := flag.String("interval", "20s", "the interval over which rates are taken")
	flag.Parse()
	variables := map[string]string{"job": *job, "instance": ".*", "__rate_interval": *interval}
	ok, err := ask(prometheus{*address}, func(name string) string { return variables[name] })
	if err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func ask(p prometheus, variable func(string) string) (ok bool, err error) {
	ok = true
	questions := monitoring.Questions(variable)
	answered, excused := 0, 0
	for _, q := range questions {
		switch found, err := p.has(q.Expr); {
		case err != nil:
			return false, fmt.Errorf("%s: %w", q.Panel, err)
		case found:
			answered++
		case q.Empty != "":
			excused++
			fmt.Printf("empty, as it may be: %s: %s\n", q.Panel, q.Empty)
		default:
			ok = false
			fmt.Printf("NO DATA: %s\n\t%s\n", q.Panel, q.Expr)
		}
	}
	fmt.Printf("%d queries: %d have data, %d may be empty and are\n", len(questions), answered,
		excused)
	healthy, err := p.rules()
	return ok && healthy, err
}

// prometheus is the address of one.
type prometheus struct{ address string }

// get asks for a page of its API.
func (p prometheus) get(path string, query url.Values, data any) error {
	client := http.Client{Timeout: 30 * time.Second}
	response, err := client.Get(p.address + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s answers %s: %w", p.address, response.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s says: %s", p.address, answer.Error)
	}
	return nil
}

// has says whether the expression has a result that is a number, at present.
func (p prometheus) has(expr string) (bool, error) {
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := p.get("/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return false, err
	}
	for _, r := range data.Result {
		if r.Value[1] != "NaN" {
			return true, nil
		}
	}
	return false, nil
}

// rules says whether all alert rules are evaluated without errors, and prints those that are not,
// and the alerts.
func (p prometheus) rules() (healthy bool, err error) {
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	if err := p.get("/api/v1/rules", nil, &data); err != nil {
		return false, err
	}
	healthy = true
	count := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			count++
			if r.Health != "ok" {
				healthy = false
				fmt.Printf("RULE %s is %s: %s\n", r.Name, r.Health, r.LastError)
			}
			if r.State != "inactive" {
				fmt.Printf("the alert %s is %s\n", r.Name, r.State)
			}
		}
	}
	if want := len(monitoring.Alerts()); count != want {
		healthy = false
		fmt.Printf("THERE ARE %d alert rules, and should be %d\n", count, want)
	}
	fmt.Printf("%d alert rules are evaluated\n", count)
	return healthy, nil
}
