raise SystemExit("todo")
