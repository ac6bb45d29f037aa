package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestPage: what a page and its parts say, with parameters and without.
func TestPage(t *testing.T) {
	ran := 0
	check := func(name string, counts bool, err error) Check {
		return Check{name, counts, func(context.Context) error { ran++; return err }}
	}
	mux := http.NewServeMux()
	Handle(mux, "/well", []Check{check("server", true, nil), check("extra", false,
		errors.New("lost"))})
	Handle(mux, "/ill", []Check{check("server", true, errors.New("no disk\nno core")),
		check("more", true, nil)})
	for _, c := range []struct {
		method, url, want string
		runs              int
	}{
		{"GET", "/well", "200 ok\n", 1},
		{"HEAD", "/well", "200 ok\n", 1},
		{"POST", "/well", "405 Method Not Allowed\n", 0},
		{"GET", "/well?verbose", "200 [+]server ok\n[-]extra failed: lost (does not count for /well)\n" +
			"ok\n", 2},
		{"GET", "/well?verbose&exclude=extra&exclude=unknown", "200 [+]server ok\nok\n", 1},
		{"GET", "/well?exclude=server", "200 ok\n", 0},
		{"GET", "/well/server", "200 ok\n", 1},
		{"GET", "/well/server?verbose", "200 [+]server ok\nok\n", 1},
		{"GET", "/well/extra", "503 [-]extra failed: lost\n", 1},
		{"DELETE", "/well/extra", "405 Method Not Allowed\n", 0},
		{"GET", "/well/nothing", "404 there is no such check; the checks below /well are server, " +
			"extra\n", 0},
		{"GET", "/ill", "503 no disk\nno core\n", 2},
		{"GET", "/ill?verbose", "503 [-]server failed: no disk; no core\n[+]more ok\n", 2},
		{"GET", "/ill?exclude=server", "200 ok\n", 1},
		{"GET", "/ill/server", "503 [-]server failed: no disk; no core\n", 1},
	} {
		ran = 0
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(c.method, c.url, nil))
		if got := fmt.Sprintf("%d %s", w.Code, w.Body); got != c.want || ran != c.runs {
			t.Errorf("%s %s: %d checks, %q\nwant %d, %q", c.method, c.url, ran, got, c.runs, c.want)
		}
	}
}
