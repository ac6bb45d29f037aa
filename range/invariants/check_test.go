package invariants

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A check panics with its text, and what recovers from the panic hands it on.
func TestCheck(t *testing.T) {
	Check(true, "nothing")
	text := Violated(func() {
		defer func() { Again(recover()) }()
		Check(false, "entry %d follows entry %d", 3, 1)
	})
	if want := "entry 3 follows entry 1"; text != want {
		t.Errorf("the text is %q, want %q", text, want)
	}
	if text := Violated(func() { Check(true, "nothing") }); text != "" {
		t.Errorf("a check that holds says %q", text)
	}
	Again(nil)
	Again(errors.New("of another panic"))
	if err := (&Violation{"no leader"}).Error(); err != "invariant violated: no leader" {
		t.Errorf("the error is %q", err)
	}
}

func TestEvery(t *testing.T) {
	var e Every
	var due []int
	for i := range 7 {
		if e.Due(3) {
			due = append(due, i)
		}
	}
	if got := fmt.Sprint(due); got != "[0 3 6]" {
		t.Errorf("due at %s", got)
	}
}

// leastChecks is how many calls of Check there are at least.
const leastChecks = 60

// Checks are in no build but those with the tag or the race detector: each call of Check, and of a
// function of checks, stands in `if invariants.Enabled`, or in a function of checks.
func TestChecksAreLeftOut(t *testing.T) {
	calls := 0
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git"):
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			filepath.Dir(path) == filepath.Join(root, "range", "invariants") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(source), "tidemark/range/invariants") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		calls += checksIn(file, func(call *ast.CallExpr, name string) {
			t.Errorf("%s: %s is called outside of `if invariants.Enabled`",
				files.Position(call.Pos()), name)
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls < leastChecks {
		t.Errorf("there are %d checks, fewer than %d", calls, leastChecks)
	}
}

// checksIn counts the calls of Check in a file, and reports the calls that are in other builds too.
func checksIn(file *ast.File, report func(call *ast.CallExpr, name string)) (calls int) {
	var visit func(node ast.Node, guarded bool)
	visit = func(node ast.Node, guarded bool) {
		ast.Inspect(node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Body != nil && ofChecks(n.Name.Name) && n != node {
					visit(n.Body, true)
					return false
				}
			case *ast.IfStmt:
				if n != node && !guarded && namesEnabled(n.Cond) {
					visit(n.Body, true)
					if n.Else != nil {
						visit(n.Else, false)
					}
					return false
				}
			case *ast.CallExpr:
				name := called(n)
				if name == "invariants.Check" {
					calls++
				}
				if !guarded && (name == "invariants.Check" || ofChecks(name)) {
					report(n, name)
				}
			}
			return true
		})
	}
	visit(file, false)
	return calls
}

// ofChecks says whether a name is that of a function of checks.
func ofChecks(name string) bool {
	name = name[strings.LastIndexByte(name, '.')+1:]
	return strings.HasPrefix(name, "check") && strings.Contains(name, "Invariant")
}

// namesEnabled says whether a condition is invariants.Enabled, or that and others.
func namesEnabled(condition ast.Expr) bool {
	if both, ok := condition.(*ast.BinaryExpr); ok && both.Op == token.LAND {
		return namesEnabled(both.X) || namesEnabled(both.Y)
	}
	selector, ok := condition.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	of, ok := selector.X.(*ast.Ident)
	return ok && of.Name == "invariants" && selector.Sel.Name == "Enabled"
}

// called is the name of a function that is called, behind that of its package or receiver if it has
// a simple one.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if of, ok := f.X.(*ast.Ident); ok {
			return of.Name + "." + f.Sel.Name
		}
		return f.Sel.Name
	}
	return ""
}
