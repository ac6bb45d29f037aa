package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The limits of a package, so that a reader can hold it in mind (docs/architecture.md).
const (
	maxPackageFiles = 30 // product files: neither tests nor generated code
	maxTypeMethods  = 60
	maxStructFields = 15
	minFileLines    = 30
)

// roomsFile lists the packages, types and files that break a limit. A line is a kind ("files",
// "methods", "fields" or "lines"), a subject, the number that was last measured, and a reason if
// the number is meant to stay. The list only shrinks: TestRooms fails when a number has become
// better than its line says, until the line follows.
const roomsFile = "testdata/rooms.txt"

type roomExcess struct{ kind, subject string }

type roomEntry struct {
	number int
	reason string
}

func readRooms(t *testing.T) map[roomExcess]roomEntry {
	t.Helper()
	raw, err := os.ReadFile(roomsFile)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[roomExcess]roomEntry{}
	for scanner := bufio.NewScanner(bytes.NewReader(raw)); scanner.Scan(); {
		line := scanner.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 {
			t.Fatalf("%s: %q is no line of kind, subject, number and reason", roomsFile, line)
		}
		number, err := strconv.Atoi(fields[2])
		if err != nil {
			t.Fatalf("%s: %q: %v", roomsFile, line, err)
		}
		of := roomExcess{fields[0], fields[1]}
		if _, twice := listed[of]; twice {
			t.Fatalf("%s: %s of %s is listed twice", roomsFile, of.kind, of.subject)
		}
		listed[of] = roomEntry{number, strings.Join(fields[3:], " ")}
	}
	return listed
}

// measureRooms finds everything that breaks a limit, with its number.
func measureRooms(t *testing.T) map[roomExcess]int {
	t.Helper()
	found := map[roomExcess]int{}
	for _, p := range listPackages(t) {
		path := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		names, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files, methods := 0, map[string]int{}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, name, source,
				parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if ast.IsGenerated(parsed) {
				continue
			}
			files++
			base := filepath.Base(name)
			// A build constraint is excuse enough for a short file, and doc.go is as long as the
			// package's idea.
			lines := bytes.Count(source, []byte("\n"))
			constrained := bytes.Contains(source, []byte("//go:build ")) ||
				strings.Contains(base, "_linux")
			if lines < minFileLines && base != "doc.go" && !constrained {
				found[roomExcess{"lines", path + "/" + base}] = lines
			}
			for _, declaration := range parsed.Decls {
				switch d := declaration.(type) {
				case *ast.FuncDecl:
					if receiver := receiverName(d); receiver != "" {
						methods[receiver]++
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						if n, ok := structFields(spec); ok && n > maxStructFields {
							found[roomExcess{"fields",
								path + "." + spec.(*ast.TypeSpec).Name.Name}] = n
						}
					}
				}
			}
		}
		if files > maxPackageFiles {
			found[roomExcess{"files", path}] = files
		}
		for name, n := range methods {
			if n > maxTypeMethods {
				found[roomExcess{"methods", path + "." + name}] = n
			}
		}
	}
	return found
}

// receiverName returns the name of the type that a method belongs to, and "" for a function.
func receiverName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return ""
	}
	of := f.Recv.List[0].Type
	for {
		switch e := of.(type) {
		case *ast.StarExpr:
			of = e.X
		case *ast.IndexExpr:
			of = e.X
		case *ast.IndexListExpr:
			of = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// structFields counts the fields of a struct type: a, b int are two, an embedded type is one.
func structFields(spec ast.Spec) (int, bool) {
	of, ok := spec.(*ast.TypeSpec)
	if !ok {
		return 0, false
	}
	structure, ok := of.Type.(*ast.StructType)
	if !ok {
		return 0, false
	}
	n := 0
	for _, field := range structure.Fields.List {
		n += max(1, len(field.Names))
	}
	return n, true
}

// Packages, types and files stay within the limits above. What breaks a limit is listed with its
// number, and the list only shrinks.
func TestRooms(t *testing.T) {
	listed, found := readRooms(t), measureRooms(t)
	limits := map[string]string{
		"files":   fmt.Sprintf("a package has at most %d product files", maxPackageFiles),
		"methods": fmt.Sprintf("a type has at most %d methods", maxTypeMethods),
		"fields":  fmt.Sprintf("a struct has at most %d fields", maxStructFields),
		"lines":   fmt.Sprintf("a file has at least %d lines", minFileLines),
	}
	order := func(a, b roomExcess) int {
		return strings.Compare(a.kind+" "+a.subject, b.kind+" "+b.subject)
	}
	for _, of := range slices.SortedFunc(maps.Keys(found), order) {
		entry, known := listed[of]
		n := found[of]
		worse := n > entry.number
		if of.kind == "lines" {
			worse = n < entry.number
		}
		switch {
		case !known:
			t.Errorf("%s has %d %s, but %s: divide or join it, or give a reason in %s",
				of.subject, n, of.kind, limits[of.kind], roomsFile)
		case worse:
			t.Errorf("%s has %d %s, and %s allows %d", of.subject, n, of.kind, roomsFile, entry.number)
		case n != entry.number:
			t.Errorf("%s has %d %s, better than the %d of %s: write the new number there",
				of.subject, n, of.kind, entry.number, roomsFile)
		}
	}
	for _, of := range slices.SortedFunc(maps.Keys(listed), order) {
		if _, still := found[of]; !still {
			t.Errorf("%s keeps to the limit of %s now: remove its line from %s", of.subject, of.kind,
				roomsFile)
		}
	}
}
