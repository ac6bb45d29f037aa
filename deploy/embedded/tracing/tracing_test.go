package tracing

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestExportsOverHTTP: a collector of OTLP over HTTP gets the spans.
func TestExportsOverHTTP(t *testing.T) {
	got := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- r.URL.Path + " " + r.Header.Get("Content-Type")
	}))
	defer collector.Close()
	p, err := New(t.Context(), Config{Endpoint: collector.URL, Getenv: func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("test").Start(t.Context(), "a call")
	span.End()
	p.Close()
	if request := <-got; request != "/v1/traces application/x-protobuf" {
		t.Errorf("the collector got %s", request)
	}
}

func TestWrongSettings(t *testing.T) {
	for want, c := range map[string]Config{
		"is no URL": {Endpoint: "localhost:4317", Getenv: func(string) string { return "" }},
		"grpc or http/protobuf": {Endpoint: "http://localhost:4317",
			Getenv: func(name string) string {
				return map[string]string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}[name]
			}},
	} {
		if _, err := New(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if p, err := New(t.Context(), Config{Getenv: func(string) string { return "" }}); p != nil ||
		err != nil {
		t.Errorf("without an endpoint: %v, %v", p, err)
	}
}
