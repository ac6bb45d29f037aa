package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Check is one check of a page.
type Check struct {
	Name string
	// Counts: if the check fails, the page as a whole fails.
	Counts bool
	// Run returns why the check fails, with a reason in each line, or nil. It is called by any
	// goroutine, and must end when ctx ends.
	Run func(ctx context.Context) error
}

// Handle serves a page, such as /readyz, and the pages below it.
func Handle(mux *http.ServeMux, path string, checks []Check) {
	p := &page{path: path, checks: checks}
	mux.HandleFunc(path, p.all)
	mux.HandleFunc(path+"/", p.one)
}

type page struct {
	path   string
	checks []Check
}

// all serves the page as a whole.
func (p *page) all(w http.ResponseWriter, r *http.Request) {
	if !mayAsk(w, r) {
		return
	}
	query := r.URL.Query()
	var lines, reasons []string
	for _, c := range p.checks {
		if slices.Contains(query["exclude"], c.Name) || !c.Counts && !verbose(query) {
			continue
		}
		err := c.Run(r.Context())
		line := lineOf(c.Name, err)
		if !c.Counts {
			line += " (does not count for " + p.path + ")"
		} else if err != nil {
			reasons = append(reasons, err.Error())
		}
		lines = append(lines, line)
	}
	if verbose(query) && len(reasons) > 0 {
		reasons = lines
	}
	answer(w, query, lines, reasons)
}

// one serves the page of one check.
func (p *page) one(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, p.path+"/")
	i := slices.IndexFunc(p.checks, func(c Check) bool { return c.Name == name })
	if i < 0 {
		http.Error(w, fmt.Sprintf("there is no such check; the checks below %s are %s", p.path,
			p.names()), http.StatusNotFound)
		return
	}
	if !mayAsk(w, r) {
		return
	}
	err := p.checks[i].Run(r.Context())
	lines, failed := []string{lineOf(name, err)}, []string(nil)
	if err != nil {
		failed = lines
	}
	answer(w, r.URL.Query(), lines, failed)
}

func (p *page) names() string {
	names := make([]string, len(p.checks))
	for i, c := range p.checks {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// mayAsk refuses requests with methods that are not for reading.
func mayAsk(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	return false
}

func verbose(query url.Values) bool { return query.Has("verbose") }

func lineOf(name string, err error) string {
	if err != nil {
		return fmt.Sprintf("[-]%s failed: %s", name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return "[+]" + name + " ok"
}

// answer writes the lines, if they were requested, and then that all checks succeeded, or which
// checks failed.
func answer(w http.ResponseWriter, query url.Values, lines, failed []string) {
	if len(failed) > 0 {
		http.Error(w, strings.Join(failed, "\n"), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if verbose(query) {
		for _, line := range lines {
			fmt.Fprintln(w, line)
		}
	}
	fmt.Fprintln(w, "ok")
}
