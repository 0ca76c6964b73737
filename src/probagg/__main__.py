"""python -m probagg"""

from probagg.app.cli import main

if __name__ == "__main__":
    main()
