"""python -m probagg"""

from probagg.cli import main

if __name__ == "__main__":
    main()
